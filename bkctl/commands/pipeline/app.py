"""``bkctl pipeline``: questions to a fleet's files, answered by SQL over tables, here or on Spark."""

from __future__ import annotations

from bkctl.commands.frame.options import noun_app
from bkctl.commands.pipeline.collect import collect_command
from bkctl.commands.pipeline.export import export_command
from bkctl.commands.pipeline.list import list_command
from bkctl.commands.pipeline.run import run_command
from bkctl.commands.pipeline.spark_submit import spark_submit_command
from bkctl.commands.pipeline.trend import trend_command

app = noun_app("Audit what all bookies of a fleet have on disk.")


app.command("list")(list_command)
app.command("collect")(collect_command)
app.command("spark-submit")(spark_submit_command)
app.command("export")(export_command)
app.command("trend")(trend_command)
app.command("run")(run_command)
