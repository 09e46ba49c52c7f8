"""The encoder of pictures: convolutions, and which axes of an observation are rows, columns and channels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import tempo_core as tp
from tempo_rl.env.spaces import Observations, channels_of
from tempo_rl.errors import EnvError

Index = tuple[tp.Expr | int, ...]  # a point of the parameters' domain
Convolution = tuple[int, int, int]  # features, kernel, stride
ACTIVATIONS: Mapping[str, Callable[[tp.Tensor], tp.Tensor]] = {"tanh": tp.tanh, "relu": tp.relu}


@dataclass(frozen=True)
class Convolutions:
    """Convolutions of pictures (..., *shape), each followed by `activation`. The axes in `channels` are channels, and so are frames that are
    stacked; the other two are rows and columns. Pictures without such axes have one channel."""

    shape: tuple[int, ...]  # of an observation
    channels: tuple[int, ...]  # axes of it
    layers: tuple[tp.nn.Conv2d, ...]
    index: Index | None = None
    activation: str = "relu"

    @staticmethod
    def build(
        observations: Observations,
        convolutions: Sequence[Convolution],
        domain: Sequence[tp.Expr],
        fed: bool,
        activation: str,
        name: str = "convolution",
    ) -> Convolutions:
        """A layer of (features, kernel, stride) for each of `convolutions`. Raises `EnvError` for observations that are not pictures."""
        shape, axes = observations.shape, channel_axes(observations)
        layers, n_in = list[tp.nn.Conv2d](), 1
        for axis in axes:
            n_in *= shape[axis]
        for k, (n_out, kernel, stride) in enumerate(convolutions):
            start = tp.nn.he_uniform()
            layers.append(
                tp.nn.Conv2d(n_in, n_out, kernel, tuple(domain), stride, "SAME", fed=fed, name=f"{name}.{k}", initial=start)
            )
            n_in = n_out
        return Convolutions(shape, axes, tuple(layers), None, activation)

    @property
    def sides(self) -> tuple[int, int]:
        """Rows and columns of a picture."""
        rows, columns = (size for axis, size in enumerate(self.shape) if axis not in self.channels)
        return rows, columns

    @property
    def size(self) -> int:
        """The number of features."""
        height, width = self.sides
        for layer in self.layers:
            stride = layer.stride if isinstance(layer.stride, int) else layer.stride[0]
            height, width = -(-height // stride), -(-width // stride)
        return height * width * self.layers[-1].n_out

    def __call__(self, x: tp.Tensor) -> tp.Tensor:
        """`x` (..., *shape) -> (..., size)."""
        batch, count = x.shape[: x.rank - len(self.shape)], len(self.channels)
        if not count:
            x = x.expand_dims(-1)
        else:
            x = tp.moveaxis(x, [axis - len(self.shape) for axis in self.channels], list(range(-count, 0)))
        if count > 1:
            x = x.reshape(*batch, *self.sides, self.layers[0].n_in)
        for layer in self.layers:
            x = ACTIVATIONS[self.activation]((layer if self.index is None else layer[self.index])(x))
        return x.reshape(*batch, self.size)

    def parameters(self) -> dict[str, tp.Tensor]:
        return {name: value for layer in self.layers for name, value in layer.parameters().items()}

    def using(self, parameters: Mapping[str, tp.Tensor]) -> Convolutions:
        """The convolutions with other tensors as their parameters, by name."""
        return replace(self, layers=tuple(layer.using({n: parameters[n] for n in layer.parameters()}) for layer in self.layers))


def channel_axes(observations: Observations) -> tuple[int, ...]:
    """The axes of pictures that are channels: frames that are stacked, in front, and the channels of each frame.

    Raises `EnvError` for observations that are not pictures, and where nothing says which axis the channels are.
    """
    shape = observations.shape
    frames = int(observations.frames > 1)  # axes in front that count frames
    rank = len(shape) - frames
    if not 2 <= rank <= 4:
        raise EnvError(
            f"network=cnn takes images of shape (height, width), or with channels as the first or the last axis, not observations {shape}",
            hint="use another network: network=mlp",
        )
    if rank == 2:
        return tuple(range(frames))
    place = observations.channels or channels_of(shape[-3:])
    height_and_width = shape[-3:-1] if place == "last" else shape[-2:]
    if rank == 4 and observations.channels is None and shape[frames] >= min(height_and_width):
        place = None  # there may be no frames in front
    if place is None:
        raise EnvError(
            f"network=cnn cannot tell which axis of observations {shape} has the channels",
            hint="write channels=last for (height, width, channels), or channels=first for (channels, height, width)",
        )
    frames += rank - 3
    return (*range(frames), frames if place == "first" else frames + 2)
