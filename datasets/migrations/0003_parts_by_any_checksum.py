from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('datasets', '0002_how_files_are_read'),
    ]

    operations = [
        migrations.RenameField(
            model_name='part',
            old_name='sha256',
            new_name='checksum',
        ),
    ]
