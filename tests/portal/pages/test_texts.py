"""Every text of the pages is translated to Chinese, and the compiled file is current."""

from __future__ import annotations

import gettext
import re
from pathlib import Path

import pytest

from runtime.messages import registered

ROOT = Path(__file__).resolve().parents[3]
CATALOGUES = ROOT / "portal" / "locale" / "zh_Hans" / "LC_MESSAGES"
_STRING = r'"((?:[^"\\]|\\.)*)"'
_PLACES = re.compile(r"%\(\w+\)s|\{\w+\}")


def entries_of(catalogue: Path) -> dict[str, str]:
    """Return message to translation, from the file. A message with a plural is its singular; Chinese has one form."""
    found = {}
    for block in catalogue.read_text(encoding="utf-8").split("\n\n"):
        originals, _, translation = block.partition("msgstr")
        singular = originals.partition("msgid ")[2].partition("msgid_plural ")[0]
        found[text_of(singular)] = text_of(translation)
    found.pop("", None)
    return found


def text_of(quoted: str) -> str:
    return "".join(re.findall(_STRING, quoted)).replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\")


def texts_of_templates() -> set[str]:
    templates = (ROOT / "portal" / "templates").rglob("*.*")
    pages = "".join(path.read_text(encoding="utf-8") for path in templates if path.suffix in (".html", ".txt"))
    blocks = re.findall(r"{% blocktranslate ?[^%]*%}(.*?){% endblocktranslate %}", pages)
    plain = re.findall(r"""{% translate (?:"([^"]*)"|'([^']*)')""", pages)
    return {double or single for double, single in plain} | {re.sub(r"{{ (\w+) }}", r"%(\1)s", text) for text in blocks}


def texts_of_accounts() -> set[str]:
    """Return the texts that the code of rbac marks for translation."""
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "rbac").rglob("*.py"))
    return {text_of(text) for text in re.findall(r'\b(?:_|gettext|ngettext)\(((?:\s*"(?:[^"\\]|\\.)*")+)', sources)}


def texts_of_scripts() -> set[str]:
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "frontend" / "src").rglob("*.ts"))
    return set(re.findall(rf"gettext\(\s*{_STRING}", sources))


@pytest.mark.parametrize(
    ("domain", "texts"),
    [
        ("django", texts_of_templates()),
        ("django", texts_of_accounts()),
        ("django", {template.text for template in registered().values()}),
        ("djangojs", texts_of_scripts()),
    ],
    ids=["templates", "accounts", "messages", "scripts"],
)
def test_no_text_is_without_a_translation(domain: str, texts: set[str]) -> None:
    entries = entries_of(CATALOGUES / f"{domain}.po")
    assert texts - entries.keys() == set()
    assert [text for text, translation in entries.items() if not translation] == []


@pytest.mark.parametrize("domain", ["django", "djangojs"])
def test_translations_have_the_places_of_their_originals(domain: str) -> None:
    for text, translation in entries_of(CATALOGUES / f"{domain}.po").items():
        assert sorted(_PLACES.findall(text)) == sorted(_PLACES.findall(translation)), text


@pytest.mark.parametrize("domain", ["django", "djangojs"])
def test_the_compiled_catalogue_is_fresh(domain: str) -> None:
    with (CATALOGUES / f"{domain}.mo").open("rb") as file:
        compiled = gettext.GNUTranslations(file)
    for text, translation in entries_of(CATALOGUES / f"{domain}.po").items():
        assert translation in (compiled.gettext(text), compiled.ngettext(text, text, 1)), text
