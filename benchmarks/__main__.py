"""Run every benchmark, one after another."""

from benchmarks import specification


def main() -> None:
    """Each benchmark prints under its own heading."""
    specification.main()


if __name__ == "__main__":
    main()
