from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("datasets", "0004_shares_by_name")]

    operations = [
        migrations.AlterField(
            model_name="file",
            name="unread",
            field=models.CharField(
                blank=True,
                choices=[
                    (why, why) for why in ("unknown", "packed", "beside", "other", "labels", "picture")
                ],
                max_length=16,
            ),
        ),
    ]
