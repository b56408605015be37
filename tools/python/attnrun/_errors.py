"""Error: a failed call of the library as an exception."""


class Error(RuntimeError):
    """A call failed. str(error) is the library's sentence.

    message   the sentence without the hint
    status    the name of the status: 'SHAPE', 'INPUT', 'UNSUPPORTED', 'MEMORY', ... (attnrun.h
              lists all)
    code      the number of the status; code // 100 is the exit code of the command line
    node      the name of the node that failed, or ''; node_index is its index, or -1, and op_type
              its operator, or ''
    tensor    the name of the tensor that is at fault, or ''
    hint      what can be done, or ''
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
