"""Files of moving pictures: animated ones by Pillow, and .mp4 by FFmpeg, which the package imageio-ffmpeg brings."""

from __future__ import annotations

import io
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from tempo_rl.errors import RLError

ANIMATED = {".gif": "GIF", ".webp": "WEBP", ".png": "PNG"}  # Pillow's names
SUFFIXES = (*ANIMATED, ".mp4")


def usual_suffix() -> str:
    """That of a video whose name nobody has chosen: .mp4 where imageio-ffmpeg is installed, else .gif."""
    return ".mp4" if _has_ffmpeg() else ".gif"


def require_suffix(path: Path) -> None:
    """Raise `RLError` unless a video can be a file of this name."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise RLError(f"a video cannot be a {path.suffix or 'file without a suffix'}", hint=f"use one of {', '.join(SUFFIXES)}")
    if suffix == ".mp4" and not _has_ffmpeg():
        raise RLError(
            "a video as .mp4 needs the package imageio-ffmpeg",
            hint="install it, pip install 'tempo-dl[mp4]', or write a .gif: episode.gif",
        )


def encoded(frames: list[np.ndarray], fps: float, suffix: str) -> bytes:
    """The bytes of a file with `frames`, uint8 (height, width, 3) each. A .gif counts in hundredths of a second.

    An .mp4 has even sides: where one is odd, its last row or column is repeated.
    """
    return _mp4(frames, fps) if suffix == ".mp4" else _animated(frames, fps, suffix)


def _has_ffmpeg() -> bool:
    try:
        return find_spec("imageio_ffmpeg") is not None
    except ValueError:  # a module without a specification is not the package
        return False


def _animated(frames: list[np.ndarray], fps: float, suffix: str) -> bytes:
    from PIL import Image

    images = [Image.fromarray(frame) for frame in frames]
    if suffix == ".gif":
        images = [image.convert("P", palette=Image.Palette.ADAPTIVE) for image in images]
    file = io.BytesIO()
    first, *others = images
    first.save(file, ANIMATED[suffix], save_all=True, append_images=others, duration=round(1000 / fps), loop=0)
    return file.getvalue()


def _mp4(frames: list[np.ndarray], fps: float) -> bytes:
    from imageio_ffmpeg import get_ffmpeg_exe

    height, width, _ = frames[0].shape
    odd = ((0, height % 2), (0, width % 2), (0, 0))
    size = f"{width + width % 2}x{height + height % 2}"
    pixels = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", f"{fps:g}", "-i", "-"]
    h264 = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-movflags", "+faststart"]  # what all players and browsers show
    with tempfile.TemporaryDirectory() as folder:
        file, log = Path(folder) / "video.mp4", Path(folder) / "log"
        try:
            command = [get_ffmpeg_exe(), "-loglevel", "error", *pixels, *h264, str(file)]
            with open(log, "wb") as errors, subprocess.Popen(command, stdin=subprocess.PIPE, stderr=errors) as process:
                assert process.stdin is not None, "it is a pipe"
                for frame in frames:
                    process.stdin.write(np.pad(frame, odd, "edge").tobytes())
            if process.returncode:
                raise RuntimeError(f"exit status {process.returncode}")
            return file.read_bytes()
        except (OSError, RuntimeError) as error:
            lines = log.read_text(errors="replace").splitlines() if log.exists() else []
            reason = lines[-1] if lines else str(error)
            raise RLError(f"FFmpeg cannot write the video: {reason}", hint="write a .gif: episode.gif") from error
