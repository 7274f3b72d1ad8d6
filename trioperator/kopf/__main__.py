"""``python -m trioperator.kopf`` is Kopf's command."""

from trioperator.kopf.command import main

if __name__ == "__main__":
    main()
