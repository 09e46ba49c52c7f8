"""What compiled programs depend on besides the program: versions, this compiler's own source, options of JAX and XLA, the machine.

Fingerprints of environments are parts of the names of kept programs (`store/cache.py`), so that nothing made elsewhere is taken.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import sys
from pathlib import Path

import jax

from tempo_core import prices
from tempo_core.backends import products
from tempo_core.store.fingerprint import fingerprint
from tempo_core.target import Target
from tempo_core.versions import installed

PACKAGES = (
    "tempo-dl", "jax", "jaxlib", "numpy", "ml-dtypes", "islpy",
    "jax-cuda12-plugin", "jax-cuda13-plugin", "jax-cuda12-pjrt", "jax-cuda13-pjrt", "jax-rocm7-plugin",
    "nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-cublas-cu12", "nvidia-cublas", "nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvcc",
)  # fmt: skip
VARIABLES = ("XLA_", "LIBTPU_INIT_ARGS", "NVIDIA_TF32_OVERRIDE", "TF_", "OMP_NUM_THREADS")  # prefixes of environment variables


def of_decisions() -> str:
    """The fingerprint of what passes and schedules depend on: versions, source, fixed prices."""
    return fingerprint((_installed(), {name: repr(value) for name, value in vars(prices).items() if name.isupper()}))


def of_device_programs() -> str:
    """The fingerprint of what XLA programs depend on: options of JAX and XLA as they are now, the device, and `of_decisions`."""
    options = [(name, str(getattr(jax.config, name, value))) for name, value in sorted(jax.config.values.items())]
    variables = sorted((name, value) for name, value in os.environ.items() if name.startswith(VARIABLES))
    return fingerprint((of_decisions(), options, variables, _machine(), Target.at_hand(), str(products.DOT_PRECISION)))


@functools.cache
def _installed() -> str:
    return fingerprint((platform.python_implementation(), sys.version_info[:2], installed(PACKAGES), _source()))


def _source() -> str:
    """A checksum of the compiler's source: its version does not change with every change."""
    root, total = Path(__file__).parent.parent, hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        total.update(f"{path.relative_to(root).as_posix()}\n".encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


@functools.cache
def _machine() -> str:
    """The devices, and the processor: XLA's machine code for a CPU uses what this CPU has."""
    devices = [(each.id, each.device_kind, each.platform, each.client.platform_version) for each in jax.devices()]
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    place = (jax.process_index(), jax.process_count())
    return fingerprint((devices, place, platform.machine(), _processor(), os.cpu_count(), affinity))


def _processor() -> str:
    """The model and the instructions of the processor. Where the system does not tell, the machine's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return f"{platform.node()} {platform.processor()}"
    fields = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features", "CPU implementer", "CPU part")
    return "\n".join(sorted({line for line in lines if line.split("\t")[0].split(":")[0].strip() in fields}))
