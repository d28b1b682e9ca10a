"""How Sphinx builds these pages: from Markdown and docstrings, with no network, into `site`."""

from __future__ import annotations

from twinkle import __version__

project = "twinkle"
author = "the twinkle authors"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["drawings.py"]
myst_heading_anchors = 3
# Docstrings write code as `code`.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 100
html_theme = "furo"
html_title = f"twinkle {__version__}"
html_copy_source = False
