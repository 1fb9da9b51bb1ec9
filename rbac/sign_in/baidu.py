"""Sign-in with a Baidu account: OAuth 2.0 as told in https://openauth.baidu.com/doc/doc.html and, about who it is,
in https://openauth.baidu.com/doc/openid.html.

Baidu knows no OpenID Connect. Its user information carries ``openid`` (who this is, for this application alone; it has
taken the place of ``userid``, which is no longer given), ``username`` (abbreviated) and ``portrait``, and no e-mail
address.
"""

from __future__ import annotations

from typing import Any

from social_core.backends.oauth import BaseOAuth2
from social_core.exceptions import AuthResponseError

BASE_URL = "https://openapi.baidu.com"


class BaiduOAuth2(BaseOAuth2[Any]):
    """``SOCIAL_AUTH_BAIDU_URL`` replaces the address of Baidu, for a stand-in."""

    name = "baidu"
    ID_KEY = "openid"
    DEFAULT_SCOPE = ["basic"]
    SCOPE_SEPARATOR = " "
    # The state travels as a parameter of its own; the address of return has to be exactly the registered one.
    REDIRECT_STATE = False

    def _address(self, path: str) -> str:
        return f"{self.setting('URL', BASE_URL).rstrip('/')}{path}"

    def authorization_url(self) -> str:
        return self._address("/oauth/2.0/authorize")

    def access_token_url(self) -> str:
        return self._address("/oauth/2.0/token")

    def user_data(self, access_token: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Who the token speaks for. Raises AuthResponseError where Baidu answers an error, which it does with 200."""
        found: dict[str, Any] = self.get_json(
            self._address("/rest/2.0/passport/users/getInfo"), params={"access_token": access_token}
        )
        if "error_code" in found or not found.get(self.ID_KEY):
            raise AuthResponseError(self, str(found.get("error_msg", "Baidu did not say who this is.")))
        return found

    def get_user_details(self, response: dict[str, Any]) -> dict[str, str]:
        return {"username": str(response.get("username", ""))}
