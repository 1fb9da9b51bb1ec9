from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("jobs", "0009_start_numbers_and_incarnations")]
    operations = [migrations.RenameField("elastic", "told", "decisions")]
