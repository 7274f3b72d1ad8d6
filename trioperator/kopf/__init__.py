"""Operators that were written for Kopf, unchanged: their ``import kopf`` gets trioperator, their asyncio handlers work.

::

    python -m trioperator.kopf run app.py

It has the options of ``kopf run``. Async handlers that are declared by ``kopf.on`` are called in an asyncio loop on
top of Trio (by ``trio-asyncio``: install ``trioperator[kopf]``), those that are declared by ``trioperator.on`` on Trio
itself: an operator can be moved over handler by handler. Where this package is not used, nothing changes.

For tests and programs, :func:`install` makes ``import kopf`` mean trioperator in the current process. See docs/kopf.md.
"""

from trioperator.kopf.imports import Installation, install

__all__ = ["Installation", "install"]
