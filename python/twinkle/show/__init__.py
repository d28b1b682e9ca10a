"""Looking at meshes: text for a terminal, SVG for a notebook, a page for a browser, and who sits where.

Every function here turns an answer of a mesh, a plan or an allocation into something to look at; none decides anything.
"""

from __future__ import annotations
