"""Who has the turn has the device alone; seconds are told for what was alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from prewarm.build.interrupted import Interrupted
from prewarm.build.turns import Interval, Member, Turns

Wait = Callable[[Callable[[], bool]], None]


class Watched(Member):
    """A member that notes whether it holds still."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []
        self.hold_still = lambda: self.told.append("still")
        self.go_on = lambda: self.told.append("on")


def joined(turns: Turns) -> Watched:
    member = Watched()
    turns.join(member, lambda: None, threading.Event())
    return member


def in_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_members_hold_still_for_whoever_has_the_turn_and_not_for_themselves() -> None:
    turns, stop = Turns(), threading.Event()
    one, other = joined(turns), joined(turns)
    one.told.clear()
    with turns.held(stop):
        assert (one.told, other.told) == (["still"], ["still"])
    assert (one.told, other.told) == (["still", "on"], ["still", "on"])
    turns.take(one, stop)
    assert (one.told[2:], other.told[2:]) == ([], ["still"])
    turns.take(one, stop)  # another process of the same child
    turns.give(one)
    assert other.told[2:] == ["still"]
    turns.give(one)
    assert other.told[2:] == ["still", "on"]


def test_turns_are_given_in_order_and_a_new_member_waits_for_its_own(wait_until: Wait) -> None:
    turns, stop = Turns(), threading.Event()
    order: list[str] = []

    def take(name: str) -> None:
        with turns.held(stop):
            order.append(name)

    def join() -> None:
        turns.join(Member(), lambda: order.append("member"), stop)

    threads = []
    with turns.held(stop):
        for number, work in enumerate((lambda: take("first"), join, lambda: take("last")), 1):
            threads.append(in_thread(work))
            wait_until(lambda number=number: len(turns._line) == number)
        assert order == []
    for thread in threads:
        thread.join(10)
    assert order == ["first", "member", "last"]


def test_a_turn_that_is_lent_is_taken_again(wait_until: Wait) -> None:
    turns, stop = Turns(), threading.Event()
    with turns.held(stop) as turn:
        with turn.lent():
            member = joined(turns)
            turns.take(member, stop)
            turns.give(member)
            turns.leave(member)
        other = in_thread(lambda: turns.take("other", stop))
        wait_until(lambda: len(turns._line) == 1)
    other.join(10)
    assert not other.is_alive()


def test_who_waits_is_interrupted_and_stands_in_nobodys_way() -> None:
    turns, stop = Turns(), threading.Event()
    with turns.held(threading.Event()):
        stop.set()
        with pytest.raises(Interrupted):
            turns.take("other", stop)
    with turns.held(threading.Event()):
        pass


def test_a_member_that_leaves_gives_back_what_it_had() -> None:
    turns, stop = Turns(), threading.Event()
    member, other = joined(turns), joined(turns)
    turns.take(member, stop)
    turns.take(member, stop)
    turns.leave(member)
    assert other.told[-1] == "on"
    with turns.held(stop):
        assert member.told[-1:] != ["still"], "it has left"


def test_seconds_are_those_that_it_worked_and_none_beside_another() -> None:
    member, other = Member(), Member()
    member.still = [Interval(2.0, 5.0), Interval(9.0, 30.0)]
    assert member.alone_s(0.0, 10.0) == 10.0 - 3.0 - 1.0
    assert member.alone_s(6.0, 8.0) == 2.0
    member.beside = {other: [Interval(7.0, 7.5)]}
    assert member.alone_s(6.0, 8.0) is None
    assert member.alone_s(0.0, 6.0) == 3.0


def test_members_know_when_they_were_two() -> None:
    turns = Turns()
    one = joined(turns)
    alone_until_s = time.monotonic()
    two = joined(turns)
    turns.leave(two)
    again_s = time.monotonic()
    assert one.alone_s(alone_until_s - 1.0, alone_until_s) is not None
    assert one.alone_s(alone_until_s - 1.0, again_s) is None
    assert one.alone_s(again_s, again_s + 1.0) == 1.0
