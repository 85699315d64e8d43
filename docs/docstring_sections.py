"""How the site shows two docstring sections that its parser has other names for."""

import griffe

SECTIONS = {
    "\nCall arguments:\n": "\nOther Parameters: Call arguments\n",
    "\nExample:\n": "\nExamples: Example\n",
}


class Sections(griffe.Extension):
    """Show `Call arguments:` as a list like `Args:`, and `Example:` as code."""

    def on_instance(self, *, obj, **kwargs):
        """Give the sections titles that the parser knows."""
        if obj.docstring is not None:
            for ours, known in SECTIONS.items():
                obj.docstring.value = obj.docstring.value.replace(ours, known)
