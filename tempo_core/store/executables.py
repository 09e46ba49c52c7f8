"""XLA programs on disk. A second process takes them from there, without tracing where it can.

An executable lies under the checksum of its program's text before compilation. A *link* leads to it from a launch of a scheduled program,
so that a process with the same scheduled program need not trace the launch to learn that text.
"""

from __future__ import annotations

import functools
import importlib
import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp

from tempo_core.compiling import Subject, compile_lowered
from tempo_core.ir.ops import Op, Udf
from tempo_core.store import environment
from tempo_core.store.entries import LOG, Entries
from tempo_core.store.fingerprint import fingerprint, is_users, unwrapped

_TARGET = re.compile(r"custom_call @([\w.$]+)|call_target_name = \"([^\"]+)\"")


class Executables:
    """The executables of one scheduled program in a cache. `program` is the program's fingerprint, or "" if it has none."""

    def __init__(self, entries: Entries, program: str):
        self.entries, self.program = entries, program

    def link(self, launch: str) -> str | None:
        """The name of the link of a launch, from a fingerprint of the launch. None if the program has no fingerprint."""
        if not self.program:
            return None
        return f"link-{fingerprint((self.program, launch, environment.of_device_programs()))}"

    def linked(self, link: str) -> str | None:
        """The identity of the executable to which a link leads."""
        content = self.entries.read(link)
        return None if content is None else content.decode()

    def add_link(self, link: str, identity: str) -> None:
        self.entries.write(link, identity.encode())

    def load(self, identity: str, devices: Sequence[jax.Device]) -> Any | None:
        """An executable for some devices. None if there is none that can be loaded here."""
        name = self._name(identity)
        content = self.entries.read(name)
        if content is None:
            return None
        try:
            targets, data, in_tree, out_tree = pickle.loads(content)
            if any(target.startswith(_LAPACK) for target in targets):
                _prepare_lapack()
            return _serializer().deserialize_and_load(data, in_tree, out_tree, devices[0].client, list(devices))
        except Exception as error:  # what JAX raises here is not stated
            self.entries.discard(
                name, f"JAX cannot load it ({str(error).splitlines()[0] if str(error) else type(error).__name__})"
            )
            return None

    def compile(
        self, identity: str, lowered: Any, devices: Sequence[jax.Device], subject: Callable[[], Subject]
    ) -> tuple[Any, bool]:
        """A traced program, compiled, and whether it is kept now.

        It cannot be kept if it calls back into this process, or runs on other devices than these; nor if it came from JAX's own
        cache: XLA's CPU compiler cannot write a program that it did not compile itself, and says so only when the program runs.
        """
        with _hits() as hits:
            compiled = compile_lowered(lowered, subject)
        targets = _targets(lowered.as_text())
        calls_back = any("callback" in target for target in targets)
        if calls_back or hits or not _runs_on(compiled, devices):
            return compiled, False
        try:
            content = pickle.dumps((targets, *_serializer().serialize(compiled)))
        except Exception as error:  # what JAX raises here is not stated
            LOG.debug("an XLA program is not kept: %s", error)
            return compiled, False
        self.entries.write(self._name(identity), content)
        return compiled, True

    def _name(self, identity: str) -> str:
        return f"xla-{fingerprint((identity, environment.of_device_programs()))}"


@contextmanager
def _hits() -> Iterator[list[str]]:
    """The programs that JAX's own cache of compiled programs gives inside, from JAX's own reports."""
    hits: list[str] = []

    def hear(event: str, *_: object, **__: object) -> None:
        if event.startswith("/jax/compilation_cache/") and ("hit" in event or "retrieval" in event):
            hits.append(event)

    jax.monitoring.register_event_listener(hear)
    jax.monitoring.register_event_duration_secs_listener(hear)
    try:
        yield hits
    finally:
        jax.monitoring.unregister_event_listener(hear)
        jax.monitoring.unregister_event_duration_listener(hear)


def _serializer() -> Any:
    """JAX's module that writes compiled programs. It is experimental: a version of JAX without it runs all programs, and keeps none."""
    return importlib.import_module("jax.experimental.serialize_executable")


def may_be_linked(text: str) -> bool:
    """Whether an executable can run in a process that has not traced its program: that tracing prepares none of the functions it calls."""
    return all(target.startswith(_LAPACK) for target in _targets(text))


_LAPACK = "lapack_"  # functions of JAX for CPUs, which are null pointers until a program that calls one of them is traced


def _targets(text: str) -> list[str]:
    """The names of the functions outside of XLA that a program calls."""
    return sorted({first or second for first, second in _TARGET.findall(text)})


@functools.cache
def _prepare_lapack() -> None:
    """Trace a decomposition of a small matrix."""
    jax.jit(jnp.linalg.qr).lower(jax.ShapeDtypeStruct((1, 1), jnp.float32))


def calls_function(op: Op) -> bool:
    """Whether the device program of an op has code of the user's in it."""
    return any(isinstance(part, Udf) and part.kind == "jax" and is_users(unwrapped(part.fn)) for part in op.parts)


def _runs_on(compiled: Any, devices: Sequence[jax.Device]) -> bool:
    """Whether an executable takes its arguments from these devices, and all of them belong to this process."""
    shardings = jax.tree.leaves((compiled.input_shardings, compiled.output_shardings))
    here = all(device.process_index == jax.process_index() for device in devices)
    return here and all(sharding.device_set == set(devices) for sharding in shardings)
