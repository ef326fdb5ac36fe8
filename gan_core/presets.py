"""Plans to start from, by name."""

from collections.abc import Mapping
from types import MappingProxyType

from gan_core.errors import PlanError
from gan_core.plan import Plan

PRESETS: Mapping[str, Plan] = MappingProxyType(
    {
        # Digits a person can read after about two minutes on two cores.
        "demo": Plan(),
        # Radford et al. 2015 (arXiv:1511.06434), section 4, trained with averaged gradients: 3,576,704 + 2,765,568 parameters.
        "dcgan": Plan(
            data="celeba",
            image_size=64,
            channels=3,
            mirror=True,
            model="dcgan",
            latent_dim=100,
            generator_width=64,
            discriminator_width=64,
            loss="bce",
            learning_rate_g=2e-4,
            learning_rate_d=2e-4,
            batch_size=64,
            ema_half_life=0,
            contribution="gradient",
            images_per_unit=320,
            quorum=960,
            codec="int4",
            weights_codec="int4",
            iterations=5_000,
            sample_interval=25,
            push_interval=100,
            evaluate_interval=100,
        ),
        # The same size, made to last: spectral norm and hinge loss (Miyato et al. 2018, arXiv:1802.05957), averaged generator.
        "better": Plan(
            data="celeba",
            image_size=64,
            channels=3,
            mirror=True,
            model="spectral",
            latent_dim=128,
            generator_width=64,
            discriminator_width=64,
            loss="hinge",
            learning_rate_g=2e-4,
            learning_rate_d=4e-4,
            beta1=0.0,
            batch_size=64,
            ema_half_life=12_500,
            images_per_unit=1_280,
            quorum="auto",  # a class of any size, of machines of any speed
            codec="int4",
            weights_codec="int4",
            iterations=0,
            epochs=50,
            sample_interval=10,
            push_interval=50,
            evaluate_interval=50,
        ),
    }
)


def preset(name: str) -> Plan:
    """The preset of this name. Raises PlanError with the names that exist."""
    try:
        return PRESETS[name]
    except KeyError:
        raise PlanError(f"There is no preset {name!r}. Choose one of: {', '.join(PRESETS)}.") from None
