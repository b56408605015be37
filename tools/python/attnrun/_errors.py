"""Error: what a call of the library says, as an exception."""


class Error(RuntimeError):
    """A call that failed; str() is the library's sentence.

    status    its name: 'SHAPE', 'INPUT', 'UNSUPPORTED', 'MEMORY', ... (attnrun.h lists all)
    code      its number; code // 100 is the exit code of the command line
    node      name of the node concerned, or ''; node_index and op_type with it (-1 and '')
    tensor    name of the tensor concerned, or ''
    hint      what to do about it, or ''
    """

    def __init__(self, message: str, status: str = "INTERNAL", code: int = 7000,
                 node: str = "", node_index: int = -1, op_type: str = "", tensor: str = "",
                 hint: str = "") -> None:
        super().__init__(message, status, code, node, node_index, op_type, tensor, hint)
        self.message = message
        self.status = status
        self.code = code
        self.node = node
        self.node_index = node_index
        self.op_type = op_type
        self.tensor = tensor
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message
