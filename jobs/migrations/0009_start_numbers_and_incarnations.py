from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0008_failed_tasks'),
    ]

    operations = [
        migrations.RenameField(
            model_name='replica',
            old_name='life',
            new_name='start_number',
        ),
        migrations.AddField(
            model_name='replica',
            name='incarnation',
            field=models.BigIntegerField(blank=True, null=True),
        ),
    ]
