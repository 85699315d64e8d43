"""How the site shows a section that only Keras layers have: `Call arguments`."""

import griffe


class CallArguments(griffe.Extension):
    """Show `Call arguments:` as a table, like `Args:`."""

    def on_instance(self, *, obj, **kwargs):
        """Give the section a title that the docstring parser knows."""
        if obj.docstring is not None:
            obj.docstring.value = obj.docstring.value.replace(
                "\nCall arguments:\n", "\nOther Parameters: Call arguments\n"
            )
