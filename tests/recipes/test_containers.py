"""The README's recipes for containers, run as they stand: only where the image lies is put below
the test's directory. Each starts a server that knows nothing of prewarm, warm.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from ..faults.bed import Model, make_model
from ..place import TIMEOUT_S
from ..readme import block_with

MODEL = "own/v1"
#: A wrapper where the recipes expect prewarm.
PREWARM = f'#!/bin/sh\nexec "{sys.executable}" -m prewarm.cli "$@"\n'
SERVER = """\
import sys

import torch

sys.path.insert(0, sys.argv[1])
import own

module = own.build().eval()
with torch.inference_mode():
    torch.compile(module, mode="default", dynamic=False)(torch.randn(8, 64))
print("answered")
"""


@dataclass(frozen=True)
class Image:
    """A built model, and a root directory that stands for a container's."""

    model: Model
    root: Path

    def placed(self, text: str, **mounted: str) -> str:
        """Put the absolute paths of a recipe below the root, and our model for the README's."""
        for mount, volume in {"/opt/prewarm": "opt/prewarm", **mounted}.items():
            text = re.sub(rf"{mount}(?=/|$)", f"{self.root}/{volume}", text)
        return text.replace("minilm/v1", MODEL)

    def start(self, argv: list[str], **variables: str) -> str:
        """Run a container's process, which must end well; return what it told on stderr."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        place = self.model.place
        environ = {name: os.environ[name] for name in os.environ if not name.startswith("PREWARM_")}
        environ |= {"PATH": path, **place.variables, **variables}
        done = subprocess.run(
            argv, cwd=self.root, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        assert "warning" not in done.stderr
        return done.stderr

    def server(self) -> list[str]:
        """The command of the server, for ``python plain.py`` in the recipes."""
        return ["python", "plain.py", str(self.model.source.parent)]

    def trust(self) -> dict[str, str]:
        """What comes with each container: where manifests are, and whose."""
        place = self.model.place
        key = (place.state_dir / "signing.pub").read_text().strip()
        return {"PREWARM_MANIFEST": str(place.cache_dir), "PREWARM_TRUST": key}

    def require_warm(self, directory: Path) -> None:
        told = self.model.place.prewarm("drift", str(directory), "--json")
        assert told.returncode == 0, told.stdout + told.stderr
        [start] = json.loads(told.stdout)["starts"]
        assert (start["counts"], start["graphs"], start["cannot_tell"]) == ({}, [], [])
        assert start["graphs_found"] == 1


@pytest.fixture(scope="module")
def built(make_place: Callable[..., Any]) -> Model:
    model = make_model(make_place(), "own")
    done = model.place.prewarm("scan")
    assert done.returncode == 0, done.stdout + done.stderr
    return model


@pytest.fixture
def image(built: Model, tmp_path: Path) -> Iterator[Image]:
    prewarm = tmp_path / "opt/prewarm/bin/prewarm"
    prewarm.parent.mkdir(parents=True)
    prewarm.write_text(PREWARM)
    prewarm.chmod(0o755)
    (tmp_path / "warm").mkdir()
    (tmp_path / "plain.py").write_text(SERVER)
    # A directory that others can write is trusted by key alone.
    cache_dir = built.place.cache_dir
    cache_dir.chmod(0o777)
    yield Image(built, tmp_path)
    cache_dir.chmod(0o755)


def test_a_container_starts_warm_by_its_entrypoint(image: Image) -> None:
    text = image.placed(block_with("ENTRYPOINT", "dockerfile"), **{"/warm": "warm"})
    entrypoint, command = (
        json.loads(re.search(rf"^{word} (.+)$", text, re.MULTILINE)[1])  # type: ignore[index]
        for word in ("ENTRYPOINT", "CMD")
    )
    assert command == image.server()[:2]
    image.start([*entrypoint, *image.server()], **image.trust())
    image.require_warm(image.root / "warm/minilm")


def test_a_container_starts_warm_by_a_script(image: Image) -> None:
    script = image.root / "entrypoint"
    script.write_text(image.placed(block_with("#!/bin/sh", "sh"), **{"/warm": "warm"}))
    script.chmod(0o755)
    image.start([str(script), *image.server()], **image.trust())
    image.require_warm(image.root / "warm/minilm")


def test_a_container_without_a_builder_starts_cold_all_the_same(image: Image) -> None:
    script = image.root / "entrypoint"
    script.write_text(image.placed(block_with("#!/bin/sh", "sh"), **{"/warm": "warm"}))
    environ = {"PATH": os.environ["PATH"], "PREWARM_MANIFEST": str(image.root / "nowhere")}
    for broken in (False, True):
        if broken:
            (image.root / "opt/prewarm/bin/prewarm").unlink()
            (image.root / "warm/minilm.env").unlink()
        done = subprocess.run(
            ["sh", str(script), "echo", "served"], env=environ, capture_output=True, text=True,
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "served"), done.stderr


def test_a_pod_starts_warm_from_what_an_init_container_without_its_gpu_filled(
    image: Image,
) -> None:
    pod = yaml.safe_load(block_with("kind: Pod", "yaml"))["spec"]
    (volume,) = pod["volumes"]
    (init,), (server,) = pod["initContainers"], pod["containers"]
    (there,), (here,) = init["volumeMounts"], server["volumeMounts"]
    assert {there["name"], here["name"]} == {volume["name"]}
    assert volume["emptyDir"] == {}

    argv = [*init["command"], *init["args"]]
    mounted = {there["mountPath"]: "warm"}
    argv = [image.placed(word, **mounted) for word in argv]
    argv = [word.replace("NVIDIA H200", "cpu") for word in argv]
    given = {variable["name"] for variable in init["env"]}
    assert given == image.trust().keys()
    # Another fact of the init container's own, which is not compared.
    image.start(argv, **image.trust(), CI="true")

    # The same files under the server's mount.
    (image.root / "run").mkdir()
    (image.root / "warm").rename(image.root / "run/warm")
    mounted = {here["mountPath"]: "run/warm"}
    variables = {one["name"]: image.placed(one["value"], **mounted) for one in server["env"]}
    assert server["command"] == image.server()[:2]
    image.start(image.server(), **variables)
    image.require_warm(Path(variables["PREWARM_DIR"]))


def test_the_shim_tells_what_the_init_container_could_not_see(image: Image) -> None:
    into = image.root / "warm/own"
    image.start(
        [str(image.root / "opt/prewarm/bin/prewarm"), "hook", MODEL, "--into", str(into)],
        **image.trust(),
    )
    recorded = into / "env.json"
    text = recorded.read_text()
    assert '"torch"' in text
    environ: Mapping[str, str] = {"PYTHONPATH": str(into / "shim"), "PREWARM_DIR": str(into)}
    recorded.write_text(re.sub(r'("torch": *)"[^"]+"', r'\1"1.0.0"', text))
    told = image.start(["python", "-c", "import torch"], **environ)
    assert "torch is " in told and "the bundle was built with 1.0.0" in told
