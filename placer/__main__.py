"""`python -m placer`: the command line of this very Python environment."""

from placer.cli.app import program

if __name__ == "__main__":
    program()
