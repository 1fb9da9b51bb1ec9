#!/bin/sh
# Extract the texts of pages and scripts to portal/locale and compile the translations. Needs gettext.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
common="--locale zh_Hans --no-location --no-obsolete --ignore node_modules --ignore .venv --ignore data/* --ignore tests/*"
# $common is split into words on purpose, and its patterns are for Django, not for the shell.
set -f
$python manage.py makemessages $common --ignore 'frontend/*'
$python manage.py makemessages $common --domain djangojs --extension ts --ignore 'portal/*' --ignore 'frontend/build/*' --ignore 'frontend/test/*'
for domain in django djangojs; do
    catalogue=portal/locale/zh_Hans/LC_MESSAGES/$domain
    msgfmt --check-format --output-file "$catalogue.mo" "$catalogue.po"
done
