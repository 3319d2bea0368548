"""``bkctl version``."""

from __future__ import annotations

import importlib.metadata
import platform

from bkctl import __version__
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, noun_app
from bkctl.commands.frame.output import Key, Schema, write_one

app = noun_app()

KEYS: Schema = (
    Key("bkctl", "string", "version of bkctl"),
    Key("python", "string", "version of the Python it runs on"),
    Key("rocksdict", "string", "version of the RocksDB binding"),
    Key("crc32c", "string", "version of the CRC32C package"),
    Key("crc32c_implementation", "string", "hardware or software"),
    Key("kernels", "string", "native (compiled) or python: what walks and checks records"),
    Key("platform", "string", "operating system and processor"),
)


@app.command()
@takes(KEYS, one=True)
def version(output: OutputOption = None) -> None:
    """[offline] [reads] Show the versions of bkctl and of the libraries that it uses.

    Examples:

      bkctl version

      bkctl version -o json
    """
    import crc32c

    from bkctl import _kernels

    row = {
        "bkctl": __version__,
        "python": platform.python_version(),
        "rocksdict": importlib.metadata.version("rocksdict"),
        "crc32c": importlib.metadata.version("crc32c"),
        "crc32c_implementation": "hardware" if crc32c.hardware_based else "software",
        "kernels": _kernels.IMPL,
        "platform": f"{platform.system().lower()} {platform.machine()}",
    }
    write_one(row, KEYS, output)
