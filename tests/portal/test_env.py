"""Settings from the environment that are more than a word or a number."""

from __future__ import annotations

import pytest
from django.core.exceptions import ImproperlyConfigured

from portal import env

NAME = "REGATTA_COORDINATION"


@pytest.mark.parametrize(("written", "read"), [(None, ""), ("", ""), ("etcd://a", "etcd://a:2379")])
def test_the_address_of_an_etcd_may_be_left_out(monkeypatch, written, read):
    monkeypatch.delenv(NAME, raising=False)
    if written is not None:
        monkeypatch.setenv(NAME, written)
    assert env.etcd_address(NAME) == read


@pytest.mark.parametrize("written", ["127.0.0.1:2379", "http://a:2379", "etcd://a:port", "sqlite:///a"])
def test_what_is_no_address_of_an_etcd_stops_the_start_with_a_sentence(monkeypatch, written):
    monkeypatch.setenv(NAME, written)
    with pytest.raises(ImproperlyConfigured, match=f"{NAME} is wrong. The address of etcd cannot be read"):
        env.etcd_address(NAME)
