"""Sign-in with a Baidu account: OAuth 2.0 as described in https://openauth.baidu.com/doc/doc.html and, for the user
information, in https://openauth.baidu.com/doc/openid.html.

Baidu does not support OpenID Connect. Its user information holds ``openid`` (the person's id, for this application
alone; it replaces ``userid``, which is no longer sent), ``username`` (abbreviated) and ``portrait``, and no e-mail
address.
"""

from __future__ import annotations

from typing import Any

from social_core.backends.oauth import BaseOAuth2
from social_core.exceptions import AuthResponseError

BASE_URL = "https://openapi.baidu.com"


class BaiduOAuth2(BaseOAuth2[Any]):
    """``SOCIAL_AUTH_BAIDU_URL`` replaces the address of Baidu, for a test server."""

    name = "baidu"
    ID_KEY = "openid"
    DEFAULT_SCOPE = ["basic"]
    SCOPE_SEPARATOR = " "
    # The state is a separate parameter; the redirect address has to equal the registered one exactly.
    REDIRECT_STATE = False

    def _address(self, path: str) -> str:
        return f"{self.setting('URL', BASE_URL).rstrip('/')}{path}"

    def authorization_url(self) -> str:
        return self._address("/oauth/2.0/authorize")

    def access_token_url(self) -> str:
        return self._address("/oauth/2.0/token")

    def user_data(self, access_token: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the user of the token. Raises AuthResponseError when Baidu returns an error, which it does with status
        200."""
        found: dict[str, Any] = self.get_json(
            self._address("/rest/2.0/passport/users/getInfo"), params={"access_token": access_token}
        )
        if "error_code" in found or not found.get(self.ID_KEY):
            raise AuthResponseError(self, str(found.get("error_msg", "Baidu did not say who this is.")))
        return found

    def get_user_details(self, response: dict[str, Any]) -> dict[str, str]:
        return {"username": str(response.get("username", ""))}
