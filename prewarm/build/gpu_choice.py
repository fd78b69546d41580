"""Which of the machine's GPUs a builder works on: ``CUDA_VISIBLE_DEVICES`` as CUDA reads it.

Pure. A builder works for one type of GPU, since an entry is a checkpoint in one environment and the
environment names the device. Rules:

- Entries are indexes, UUIDs or their beginnings; the first that names nothing ends the list.
- CUDA numbers GPUs of several types by speed unless ``CUDA_DEVICE_ORDER=PCI_BUS_ID``, and slices in
  a way of its own. Where an index could mean another GPU here than there, nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prewarm.build.gpu import Gpu

VARIABLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"


@dataclass(frozen=True, slots=True)
class Choice:
    """The GPUs to work on, in CUDA's order; ``problem`` is why there are none, or not all."""

    gpus: tuple[Gpu, ...]
    problem: str | None = None


def choose_gpus(present: Sequence[Gpu], environ: Mapping[str, str]) -> Choice:
    """Return the GPUs that a process with these variables may use, if they are of one type."""
    named = environ.get(VARIABLE)
    chosen = Choice(tuple(present)) if named is None else _named(present, named, environ)
    types = list(dict.fromkeys(gpu.name for gpu in chosen.gpus))
    if len(types) <= 1:
        return chosen
    first = ",".join(gpu.uuid for gpu in chosen.gpus if gpu.name == types[0])
    return Choice(
        (),
        f"a builder works for one type of GPU and sees {len(types)} ({', '.join(types)}); start "
        f"one for each, here with {VARIABLE}={first}",
    )


def _named(present: Sequence[Gpu], named: str, environ: Mapping[str, str]) -> Choice:
    chosen: list[Gpu] = []
    for word in (word.strip() for word in named.split(",")):
        if word.lstrip("+-").isdecimal():
            if not _has_plain_order(present, environ):
                return Choice(
                    (),
                    f"{VARIABLE}={named} names indexes, whose order only CUDA knows where GPUs of "
                    f"several types or slices are; name UUIDs (nvidia-smi -L) or set "
                    f"{ORDER}=PCI_BUS_ID",
                )
            found = [gpu for gpu in present if str(gpu.index) == word]
        else:
            found = [gpu for gpu in present if word and gpu.uuid.startswith(word)]
        if len(found) != 1:
            what = "no GPU" if not found else f"{len(found)} GPUs"
            told = f"{VARIABLE}={named}: {word or 'an empty entry'} is {what} of this machine"
            return Choice(tuple(chosen), told)
        if found[0] not in chosen:
            chosen.append(found[0])
    return Choice(tuple(chosen))


def _has_plain_order(present: Sequence[Gpu], environ: Mapping[str, str]) -> bool:
    if any(gpu.is_slice for gpu in present):
        return False
    same = len({gpu.name for gpu in present}) <= 1
    return same or environ.get(ORDER) == "PCI_BUS_ID"
