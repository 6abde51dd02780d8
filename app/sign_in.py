"""Which control plane, with which key: from the environment, or from a form; the key stays in the session."""

import os
from dataclasses import dataclass

import streamlit as st

from app.panels import guarded
from controlplane.client import ControlPlaneClient

URL_VARIABLE = "ELDR_CONTROL_PLANE_URL"
KEY_VARIABLE = "ELDR_DASHBOARD_API_KEY"
FLEET_VARIABLE = "ELDR_FLEET"
DEFAULT_URL = "http://127.0.0.1:8070"
CREDENTIALS = "credentials"
CLIENT = "client"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a session signs in with."""

    url: str
    api_key: str
    fleet: str

    def __repr__(self) -> str:
        """Leave the key out."""
        return f"Credentials(url={self.url!r}, fleet={self.fleet!r})"


def signed_in_client() -> ControlPlaneClient | None:
    """Return the session's client, or None until somebody has signed in."""
    if CLIENT in st.session_state:
        client: ControlPlaneClient = st.session_state[CLIENT]
        return client
    credentials = st.session_state.get(CREDENTIALS) or _from_environment()
    if credentials is None:
        return None
    st.session_state[CLIENT] = ControlPlaneClient(credentials.url, credentials.api_key, credentials.fleet)
    return signed_in_client()


def show_sign_in() -> None:
    """Ask for address, key and fleet; the key is tried before it is kept."""
    _, middle, _ = st.columns([1, 1.2, 1])
    with middle, st.form("sign_in"):
        st.subheader("Sign in to ELDR")
        url = st.text_input(
            "Control plane", value=os.environ.get(URL_VARIABLE, DEFAULT_URL), key="sign_in_url"
        )
        key = st.text_input("API key", type="password", key="sign_in_key", help="Kept in this session only.")
        fleet = st.text_input("Fleet", value=os.environ.get(FLEET_VARIABLE, ""), key="sign_in_fleet")
        is_sent = st.form_submit_button("Sign in", type="primary", width="stretch")
        if not is_sent:
            return
        if not (url.strip() and key.strip() and fleet.strip()):
            st.error("All three are needed.")
            return
        _try(Credentials(url=url.strip().rstrip("/"), api_key=key.strip(), fleet=fleet.strip()))


def show_sign_out() -> None:
    """Offer to forget the key that was typed in."""
    if CREDENTIALS in st.session_state:
        st.button("Sign out", key="sign_out", on_click=_sign_out, icon=":material/logout:", type="tertiary")


def _try(credentials: Credentials) -> None:
    client = ControlPlaneClient(credentials.url, credentials.api_key, credentials.fleet)
    with guarded():
        client.status()
        st.session_state[CREDENTIALS] = credentials
        st.session_state[CLIENT] = client
        st.rerun()
    client.close()


def _sign_out() -> None:
    client: ControlPlaneClient | None = st.session_state.get(CLIENT)
    if client is not None:
        client.close()
    for name in list(st.session_state):
        del st.session_state[name]


def _from_environment() -> Credentials | None:
    api_key, fleet = os.environ.get(KEY_VARIABLE), os.environ.get(FLEET_VARIABLE)
    if not api_key or not fleet:
        return None
    return Credentials(url=os.environ.get(URL_VARIABLE, DEFAULT_URL), api_key=api_key, fleet=fleet)
