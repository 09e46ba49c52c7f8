"""Functions on recurrent tensors, under NumPy's and JAX's names. Most are methods of `Tensor` too.

Operands broadcast as in NumPy, with symbolic sizes; Python numbers take the tensor's dtype; the domain is the union of the operands'.
"""

from tempo_core.frontend.functions.arithmetic import *  # noqa: F403
from tempo_core.frontend.functions.contractions import *  # noqa: F403
from tempo_core.frontend.functions.core import *  # noqa: F403
from tempo_core.frontend.functions.elementwise import *  # noqa: F403
from tempo_core.frontend.functions.indexing import *  # noqa: F403
from tempo_core.frontend.functions.reductions import *  # noqa: F403
from tempo_core.frontend.functions.shapes import *  # noqa: F403
from tempo_core.frontend.tensor import FUNCTIONS

FUNCTIONS.update({name: value for name, value in globals().items() if callable(value)})
