"""``bkctl repair``: the noun."""

from __future__ import annotations

from bkctl.commands.frame.options import noun_app
from bkctl.commands.repair import forget, log, plan, run, undo

app = noun_app(
    """Plan repairs, carry them out, and the way back.

    Every verb that repairs a stopped bookie keeps what was there before, in a folder bkctl-repairs of each
    directory, with a record of what it changes. No bookie reads it.
    """
)


app.command("plan")(plan.plan_command)
app.command("run")(run.run_command)
app.command("log")(log.log_command)
app.command("undo")(undo.undo_command)
app.command("forget")(forget.forget_command)
