"""The live view of an operator: a web application of pages, for people. Quart-Trio is loaded by what serves it only."""
