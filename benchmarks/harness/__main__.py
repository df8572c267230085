"""``python -m harness``: see command.py."""

import sys

from harness.command import main

sys.exit(main())
