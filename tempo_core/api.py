"""All public names of the core. `tempo_core` has them too, and imports this module, and JAX with it, when the first of them is used."""

from tempo_core import errors, nn, optim, typing
from tempo_core.config import Config
from tempo_core.context import Context
from tempo_core.cpu import use_cpu_devices
from tempo_core.frontend import functions, random
from tempo_core.frontend.autodiff.backward import grad
from tempo_core.frontend.carry import carry
from tempo_core.frontend.functions import *  # noqa: F403
from tempo_core.frontend.functions import greatest_index as max
from tempo_core.frontend.functions import least_index as min
from tempo_core.frontend.inputs import input, sink, spec, udf
from tempo_core.frontend.library import fft, linalg
from tempo_core.frontend.library.complex import Complex
from tempo_core.frontend.recurrence import Recurrence, recurrence
from tempo_core.frontend.run_lengths import upto
from tempo_core.frontend.tensor import Tensor
from tempo_core.frontend.tensor import UserExpr as Expr
from tempo_core.program import Program
from tempo_core.report.programs.profile import Profile
from tempo_core.runtime.embedded.jax_function import JaxFunction, JaxState
from tempo_core.runtime.live.live import Run
from tempo_core.runtime.live.state_file import Snapshot
from tempo_core.target import Target

__all__ = [
    "Complex", "Config", "Context", "Expr", "JaxFunction", "JaxState", "Profile", "Program", "Recurrence", "Run", "Snapshot", "Target", "Tensor",
    "carry", "errors", "fft", "grad", "input", "linalg", "max", "min", "nn", "optim", "random", "recurrence", "sink", "spec",
    "typing", "udf", "upto", "use_cpu_devices",
]  # fmt: skip
__all__ += functions.__all__
