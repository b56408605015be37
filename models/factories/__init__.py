"""One file per system: build(…) gives the module to export, what computes the expected
outputs, and the sets of inputs, the first of which is traced."""
