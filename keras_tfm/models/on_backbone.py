"""What all heads on a backbone do alike."""

import keras

from keras_tfm.models import inputs as tools


class OnBackbone:
    """Makes a functional model with a `backbone` take what the backbone takes.

    Keys that the backbone can do without may be missing here too, and the config
    holds the backbone's, by which it is made again.
    """

    def call(self, inputs, training=None, mask=None):
        return super().call(self.complete(inputs), training=training, mask=mask)

    def compute_output_spec(self, inputs, training=None, mask=None):
        return super().compute_output_spec(self.complete(inputs))

    def complete(self, inputs):
        """All inputs, as the backbone completes them.

        Args:
            inputs: see the call arguments.
        """
        complete = getattr(self.backbone, "complete", None)
        return inputs if complete is None else complete(inputs)

    def get_config(self):
        return {
            **tools.base_config(self),
            "backbone": keras.saving.serialize_keras_object(self.backbone),
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        backbone = keras.saving.deserialize_keras_object(
            config["backbone"], custom_objects=custom_objects
        )
        return cls(**{**config, "backbone": backbone})
