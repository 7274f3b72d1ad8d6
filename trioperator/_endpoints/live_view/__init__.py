"""The live view of an operator: a web application for people. Quart-Trio is loaded only if it is served."""
