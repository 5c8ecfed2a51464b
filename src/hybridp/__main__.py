"""`python -m hybridp`: the command line."""

from hybridp.cli.app import main

if __name__ == "__main__":
    main()
