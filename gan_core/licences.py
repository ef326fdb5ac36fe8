"""The licences that the Hugging Face Hub knows by name. It refuses a push whose card names another.

Its list: https://huggingface.co/docs/hub/repositories-licenses, without those of single language models.
"""

from difflib import get_close_matches

from gan_core.errors import PlanError

NAMES = """
apache-2.0 mit openrail openrail++ bigscience-openrail-m creativeml-openrail-m bigscience-bloom-rail-1.0 bigcode-openrail-m
afl-3.0 artistic-2.0 bsl-1.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear c-uda cc cc0-1.0 cc-by-2.0 cc-by-2.5 cc-by-3.0
cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0
cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cdla-sharing-1.0 cdla-permissive-1.0 cdla-permissive-2.0 wtfpl ecl-2.0
epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 eupl-1.2 agpl-3.0 gfdl gpl gpl-2.0 gpl-3.0 lgpl lgpl-2.1 lgpl-3.0 isc lppl-1.3c ms-pl
mpl-2.0 odc-by odbl osl-3.0 postgresql ofl-1.1 ncsa unlicense zlib pddl lgpl-lr unknown other
"""
LICENCES = frozenset(NAMES.split())


def require_known(licence: str) -> None:
    """Refuse a name that the hub would refuse at the first push; "" is none.

    Raises:
        PlanError: says what is meant, perhaps.
    """
    if not licence or licence in LICENCES:
        return
    close = get_close_matches(licence, LICENCES, n=3)
    meant = f"Is it {' or '.join(close)}? " if close else ""
    raise PlanError(
        f"hub_licence: the Hugging Face Hub knows no licence {licence!r} and would refuse each push. {meant}"
        "Its list: https://huggingface.co/docs/hub/repositories-licenses; for one that isn't there, write other."
    )
