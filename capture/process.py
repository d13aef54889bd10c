"""The capture of this process: begins when the program imports torch, and ends with the program."""

from __future__ import annotations

import atexit
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import session
from .guard import no_harm
from .imports import when_imported
from .messages import describe, say
from .termination import Termination

if TYPE_CHECKING:
    from argparse import Namespace

    from .forward import ForwardSchedule
    from .schedule import AutomaticSchedule
    from .settings import Settings
    from .step_at import StepAt
    from .step_numbers import StepNumbers
    from .weights_schedule import WeightsSchedule

__all__ = ["Capture", "close", "is_captured", "step"]


class Capture:
    """The one capture of a process. Errors in it are one line on standard error and never end the program.

    Args:
        options: gives the options and what they ask for, once torch is there; a ValueError says that they are wrong.
        folder: logs go to `numerics/` in it.
        inherited: from the environment: a program that calls no model is not spoken of.
        with_forward: the command or setting that records calls of a model, for a program that never trains.
    """

    def __init__(
        self,
        options: Callable[[], tuple[Namespace, Settings]],
        folder: Path,
        *,
        inherited: bool,
        with_forward: str = "forward=True",
    ) -> None:
        self.inherited = inherited
        self._with_forward = with_forward
        self._options, self._folder, self._absolute = options, folder, folder.absolute()
        self._began_session = False
        self._places = session.Places(folder)
        self._schedule: AutomaticSchedule | ForwardSchedule | None = None
        self._weights: WeightsSchedule | None = None
        self._step_at: StepAt | None = None
        self._begun = self._closed = False
        self._started = self._in_fork = False
        self._last_step = 0.0
        self._termination = Termination(_terminated)

    def begin(self) -> None:
        """Replace the capture that there may be, and record from when torch is imported."""
        global _current  # noqa: PLW0603 - there is one
        if _current is not None:
            _current.close(quiet=True)
            self._began_session = _current._began_session
        self._began_session |= session.join()
        _current = self
        _hooks()
        when_imported("torch", _torch_is_there)

    @property
    def schedule(self) -> AutomaticSchedule | ForwardSchedule | None:
        """The finder of the steps, None before torch is imported, and after an error."""
        return self._schedule

    def start(self) -> None:
        """Install the schedule; torch has been imported."""
        if self._closed or self._schedule is not None:
            return
        self._started = True
        with no_harm("nothing is captured"):
            try:
                args, settings = self._options()
            except ValueError as error:
                say(f"nothing is captured: {error}")
                return
            from .weights_schedule import WeightsSchedule

            self._last_step = args.steps.last
            if (args.deterministic is not None or args.deterministic_warn_only) and not self._in_fork:
                from .determinism import make_deterministic

                seed = 42 if args.deterministic is None else args.deterministic
                for line in str(make_deterministic(seed, args.deterministic_warn_only)).splitlines():
                    say(line)
            if args.weights != ():
                self._weights = WeightsSchedule(self._folder, args.weights, settings, place=self._places)
            if args.step_at is not None:
                from .step_at import StepAt

                self._step_at = StepAt(args.step_at, step)
            self._schedule = self._schedule_for(args.steps, settings)
            self._schedule.install()
            atexit.register(_program_ends)

    def _schedule_for(self, steps: StepNumbers, settings: Settings) -> AutomaticSchedule | ForwardSchedule:
        if settings.forward:
            from .forward import ForwardSchedule

            return ForwardSchedule(self._folder, steps, settings, on_begin=self._on_begin, place=self._places)
        from .schedule import AutomaticSchedule

        return AutomaticSchedule(
            self._folder,
            steps,
            settings,
            weights=self._weights,
            on_begin=self._on_begin,
            place=self._places,
            on_call=None if self._step_at is None else self._step_at.look,
        )

    def close(self, reason: str | None = None, *, quiet: bool = False) -> None:
        """Write what is recorded, and remove the hooks.

        Args:
            reason: why the program ended early, None if it did not.
            quiet: write and say nothing.
        """
        if self._closed:
            return
        self._closed = True
        with self._termination.put_off(), no_harm("the capture did not end well"):
            self._close(reason, quiet=quiet)
        if self._began_session and not quiet:
            session.end()

    def _close(self, reason: str | None, *, quiet: bool) -> None:
        schedule = self._schedule
        tracer = None if schedule is None else schedule.recorder.tracer
        stopped = tracer is not None and tracer.ends_process
        reason = "--stop" if stopped else reason
        others = session.written(self._absolute) - self._places.taken
        trained = stopped or (
            schedule is not None
            and (schedule.trained or (self._begun and _trains(schedule, certainly=bool(others) and reason is None)))
        )
        if schedule is not None:
            if quiet or not (trained or (not self.inherited and not others)):
                schedule.discard()
            else:
                schedule.close(reason)
        if self._step_at is not None:
            self._step_at.remove()
            if schedule is not None and schedule.saw_model and not self._step_at.found:
                say(f"--step-at {self._step_at.name}: no such function was found")
        if quiet:
            return
        if schedule is not None and schedule.saw_model and not (trained or others or reason):
            from .recorder import current_rank

            if not current_rank():
                say(f"nothing was trained, but a model was called; this records its calls: {self._with_forward}")
        if self._weights is not None:
            self._weights.close()
        if others and not trained and (self._began_session or not self.inherited):
            where = os.path.relpath(os.path.commonpath([path.parent for path in others]))
            say(f"{len(others)} log{'s' * (len(others) > 1)} of the started processes, in {where}")
        elif not self._started and not self.inherited and reason is None:
            say("no log: the script did not import torch")
        if not (others or trained or self.inherited or reason) and not _reaches_children():
            say("child processes are captured only where pip has installed numtui, not from a checkout on the path")
        if (others or trained) and not self.inherited and reason is None:
            folder = shlex.quote(os.path.relpath(self._absolute))
            say(f"next: numtui {folder} OTHER_RUN compares it with another run, numtui check {folder} checks it alone")

    def forked(self) -> None:
        """Begin anew in a child that has everything of its parent."""
        self._termination.has_forked(child=True)
        schedule, self._schedule = self._schedule, None
        self._weights = None
        with no_harm("a forked process is not captured"):
            if schedule is not None:
                schedule.discard()
        self._places = session.Places(self._folder)
        self.inherited, self._began_session, self._in_fork = True, False, True
        self._begun = False
        # a trainer forks to load data
        if schedule is not None and not schedule.followed:
            self.start()
        _at_end_of_child(self)

    def _on_begin(self, step: int) -> None:
        self._begun = True
        if step <= self._last_step:
            self._termination.take()
        else:
            self._termination.give_back()


_current: Capture | None = None


def close(*, quiet: bool = False) -> None:
    """Close the capture of this process, if it has one."""
    if _current is not None:
        _current.close(quiet=quiet)


def step() -> None:
    """Say that a step of the training ends here; without a capture it does nothing."""
    if _current is not None and _current.schedule is not None:
        with no_harm("a step did not end well"):
            _current.schedule.step_ends()


def is_captured() -> bool:
    """Return True while this process is captured."""
    return _current is not None and not _current._closed


def _terminated(reason: str) -> None:
    if _current is not None:
        _current.close(reason)


def _trains(schedule: AutomaticSchedule | ForwardSchedule, *, certainly: bool) -> bool:
    """Return True if a step is in progress: a backward pass has run, or (less certainly) there is an optimizer."""
    from .attribution import BACKWARD

    tracer = schedule.recorder.tracer
    return tracer is not None and (
        any(event.place.phase == BACKWARD for event in tracer.events) or (not certainly and schedule.has_optimizer)
    )


def _reaches_children() -> bool:
    """Return True where every Python that starts reads `numtui_capture.pth`."""
    return any(os.path.exists(os.path.join(entry, "numtui_capture.pth")) for entry in sys.path)


def _torch_is_there() -> None:
    if _current is not None:
        _current.start()


def _program_ends() -> None:
    """Close at the end of the program, with the exception that ended it, if one did."""
    if _current is None:
        return
    error = getattr(sys, "last_value", None)
    _current.close(None if error is None else describe(error))


_hooked = False


def _hooks() -> None:
    """Register once what this process calls at its end and after a fork."""
    global _hooked  # noqa: PLW0603 - once per process
    if not _hooked:
        _hooked = True
        atexit.register(_program_ends)
        os.register_at_fork(before=_forks, after_in_parent=_has_forked, after_in_child=_forked)


def _forks() -> None:
    if _current is not None:
        _current._termination.forks()


def _has_forked() -> None:
    if _current is not None:
        _current._termination.has_forked(child=False)


def _forked() -> None:
    if _current is not None:
        _current.forked()


def _at_end_of_child(capture: Capture) -> None:
    """Close at the end of a child of `multiprocessing`, which leaves without running what `atexit` knows."""
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.Finalize(capture, _program_ends, exitpriority=0)
        # a child forgets what its parent wanted to finalize, and then calls this
        util.register_after_fork(capture, _at_end_of_child)
