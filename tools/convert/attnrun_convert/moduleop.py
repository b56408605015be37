"""--moduleop pkg.Class=attnrun::Op(…): a module of the user's own as one operator.

    pkg.Attention=attnrun::LinearAttention(q, k, v, key_mask=mask, q_num_heads=self.heads)

Between the parentheses: operands in the operator's order or by name, then attributes by
name. A name is a parameter of the module's forward, None an absent operand, `self.…`
something of the module (a tensor is an operand or, after an attribute's name, a value),
anything else a constant. Without positional operands the tensors of the call are taken in
order. `n_outputs=2` where forward gives a tuple. Structure is not asked for; the probe is.
"""
import ast
import inspect

import torch

from . import operators
from .call import call
from .errors import UnsupportedError, UsageError
from .registry import Adapter, need

FORM = "pkg.Class=attnrun::Op(operand, name=value)"


def _parsed(text):
    """(class name, operator, positional expressions, keyword expressions)"""
    name, equals, right = text.partition("=")
    domain, colons, expression = right.strip().partition("::")
    if not equals or not colons or domain != "attnrun":
        raise UsageError(f"--moduleop '{text}' is not of the form {FORM}")
    if "(" not in expression:
        expression += "()"
    try:
        tree = ast.parse(expression, mode="eval").body
    except SyntaxError as error:
        raise UsageError(f"--moduleop '{text}': {error.msg}, expected {FORM}") from error
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
        raise UsageError(f"--moduleop '{text}' is not of the form {FORM}")
    return name.strip(), tree.func.id, tree.args, {k.arg: k.value for k in tree.keywords}


def _value(node, module, arguments):
    """What an expression means in a call of the module."""
    if isinstance(node, ast.Name) and node.id != "self":
        need(node.id in arguments, f"its forward has no parameter '{node.id}'")
        return arguments[node.id]
    if isinstance(node, ast.Attribute):
        owner = _value(node.value, module, arguments)
        need(hasattr(owner, node.attr), f"it has no '{ast.unparse(node)}'")
        return getattr(owner, node.attr)
    if isinstance(node, ast.Name):
        return module
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        raise UsageError(f"--moduleop: '{ast.unparse(node)}' is neither a constant, a "
                         "parameter of forward, nor self.…") from error


class ModuleOp(Adapter):
    """Filled in by `adapter`."""
    text = ""
    parts = ()

    @classmethod
    def demand(cls, plan):
        """What the user names must be replaced."""
        mine = [entry for entry in plan.entries if isinstance(entry.adapter, cls)]
        if not mine:
            raise UnsupportedError(f"--moduleop '{cls.text}': the model has no module of "
                                   f"class {cls.names[0]}")
        for entry in mine:
            if not entry.taken:
                raise UnsupportedError(f"--moduleop '{cls.text}': {entry.line()}")

    def forward(self, *args, **kwargs):
        name, positional, keywords = self.parts
        given = inspect.signature(type(self.module).forward).bind(self.module, *args, **kwargs)
        given.apply_defaults()
        arguments = dict(list(given.arguments.items())[1:])
        operator = operators.load()[name]
        names = [operand.name for operand in operator.inputs]
        values = {k: _value(v, self.module, arguments) for k, v in keywords.items()}
        operands = [_value(node, self.module, arguments) for node in positional]
        if not positional and not set(values) & set(names):
            operands = [x for x in arguments.values() if isinstance(x, torch.Tensor)]
        need(len(operands) <= len(names), f"{name} takes {len(names)} operands")
        operands += [None] * (len(names) - len(operands))
        for i, operand in enumerate(names):
            if operand in values:
                operands[i] = values.pop(operand)
        return call(name, *operands, **values)


def adapter(text):
    """The adapter class of one --moduleop."""
    name, operator, positional, keywords = _parsed(text)
    if operator not in operators.load():
        raise UsageError(f"--moduleop '{text}': there is no operator attnrun::{operator}; "
                         f"known are {', '.join(sorted(operators.load()))}")
    kind = type("ModuleOp_" + operator, (ModuleOp,), {})
    kind.names, kind.operator, kind.text = (name,), operator, text
    kind.parts = (operator, positional, keywords)
    return kind
