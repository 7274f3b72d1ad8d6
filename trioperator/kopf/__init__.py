"""Operators that were written for Kopf, unchanged: they import trioperator as ``kopf``, and asyncio handlers work.

::

    trioperator-kopf run app.py

``python -m trioperator.kopf`` is the same command. It has the options of ``kopf run``. Async handlers of ``kopf.on``
are called in an asyncio loop beside Trio, those of ``trioperator.on`` on Trio itself, so that an operator can be ported
handler by handler.

For tests and programs, :func:`install` makes ``import kopf`` mean trioperator in the current process. See docs/kopf.md.
"""

from trioperator.kopf.imports import Installation, install

__all__ = ["Installation", "install"]
