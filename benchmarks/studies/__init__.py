"""Studies: published claims, tried at a size that a laptop holds. Each is one module to run with ``python -m``."""
