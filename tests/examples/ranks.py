"""One rank that trains several times over, with each of the command lines it is given; torch is imported once."""

import importlib
import os
import sys


def main() -> None:
    """`ranks.py EXAMPLES PORT ARGUMENTS…`: a rendezvous of its own for each run, on the ports from PORT on."""
    examples, port, *runs = sys.argv[1:]
    sys.path.insert(0, examples)
    script = importlib.import_module("train")
    for index, arguments in enumerate(runs):
        os.environ["MASTER_PORT"] = str(int(port) + index)
        script.main(arguments.split())


if __name__ == "__main__":
    main()
