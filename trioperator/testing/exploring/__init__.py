"""Exploration: states of custom objects are played in virtual time, to find what an operator does wrong.

A *play* is one run of the operator on a fresh embedded cluster, in which an object goes through a *sequence* of states,
and is deleted. The *oracles* compare plays, and look at single ones; what they find is shrunk.

- :mod:`.app`, :mod:`.subjects`: the operator, and the kinds that it handles
- :mod:`.schemas`, :mod:`.sequences`: which states there are, and in which order they are played
- :mod:`.plays`, :mod:`.stages`, :mod:`.steps`, :mod:`.snapshots`, :mod:`.outside`: one play, and what is kept of it
- :mod:`.oracles`, :mod:`.findings`: what must hold, and what is found
- :mod:`.explorer`, :mod:`.shrinking`, :mod:`.reports`: the search, and its results
- :mod:`.perturbations`, :mod:`.troubles`: faults that are injected
- :mod:`.checks`, :mod:`.properties`, :mod:`.scenarios`, :mod:`.command`: the ways in, for tests and for
  ``trioperator explore``
"""
