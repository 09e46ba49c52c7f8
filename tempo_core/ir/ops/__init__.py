"""The op set: one frozen dataclass per op, with its shape and dtype rule in `infer`, and what an execution costs in `work`.

Ops are stateless and know nothing of time: temporal indexing is on the graph's edges. An op's fields are its static
parameters; sizes may be symbolic expressions. The operands of an elementwise op have equal shapes (the frontend inserts
`Broadcast` and `Cast`). Kernels, gradients and dimensions are tables keyed by these classes, elsewhere.
"""

from tempo_core.ir.ops.base import *  # noqa: F403
from tempo_core.ir.ops.contraction_ops import *  # noqa: F403
from tempo_core.ir.ops.elementwise_ops import *  # noqa: F403
from tempo_core.ir.ops.indexing_ops import *  # noqa: F403
from tempo_core.ir.ops.reduction_ops import *  # noqa: F403
from tempo_core.ir.ops.source_ops import *  # noqa: F403
from tempo_core.ir.ops.structure_ops import *  # noqa: F403
from tempo_core.ir.ops.view_ops import *  # noqa: F403
