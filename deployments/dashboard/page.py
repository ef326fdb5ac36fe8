"""What streamlit runs for each visitor: `streamlit run page.py`."""

from deployments.dashboard.panels import show
from gan_core.settings import settings

show(settings().database_url)
