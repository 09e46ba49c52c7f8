"""Being written: replace this file."""


class Interpreter:
    def __init__(self, *args, **kwargs):
        raise RuntimeError("the interpreter is being written")
