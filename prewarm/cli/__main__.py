"""``python -m prewarm.cli``, for where the command is not on PATH."""

from prewarm.cli.main import main

raise SystemExit(main())
