"""References of operators, one file each, named after the operator in snake case; pieces
that they share are in _heads.py. See ../operators.py and ../../README.md."""
