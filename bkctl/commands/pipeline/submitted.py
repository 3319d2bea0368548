"""Run the command line of ``bkctl`` in the driver that Spark made; ``spark-submit`` starts this module.

``bkctl pipeline spark-submit`` prints the whole command.
"""

import sys

if __name__ == "__main__":
    # The directory of this file: names of modules beside it are no top-level ones.
    sys.path.pop(0)
    from bkctl.commands.frame.root import run

    sys.exit(run(sys.argv[1:]))
