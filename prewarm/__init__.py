"""prewarm: proven warm starts for ``torch.compile`` under max-autotune.

This package holds the builder (``registry``, ``build``, ``store``), the deployment's side
(``deploy``) and the command line (``cli``). Only ``torchside`` imports torch.
"""

__version__ = "0.1.0"
