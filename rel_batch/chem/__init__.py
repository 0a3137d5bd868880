"""The one home of RDKit: molecules, motifs and isomers.

Importing this package costs nothing; each module loads RDKit when it is imported itself, and the
tasks import those modules only when a molecule has to be read.
"""
