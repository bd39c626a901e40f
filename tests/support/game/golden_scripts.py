"""Short games for rules that seldom apply, each answer written down: what test_golden replays.

The table of nine: 1 seer, 2 witch, 3 hunter, 4 guard, 5 and 6 villagers, 7 and 8 wolves, 9 wolf king.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from runners.werewolf.game import Preset, Role
from tests.support.game.game_playing import TINY, deck

NINE_SEATS = Preset(
    name="9p_golden",
    deck=deck(seer=1, witch=1, hunter=1, guard=1, villager=2, wolf=2, wolf_king=1),
    round_limit=1,
    sheriff=True,
    wolf_talk_rounds=0,
    wolves_may_explode=True,
)
TWO_DAYS = replace(NINE_SEATS, round_limit=2)
FIVE_SEATS = Preset(name="5p_golden", deck=deck(hunter=1, villager=3, wolf=1), round_limit=2)


@dataclass(frozen=True)
class Scripted:
    """A short game. shows: what to look for, in Chinese. views: seats whose own view is written down too."""

    shows: str
    script: str
    preset: Preset = NINE_SEATS
    roles: tuple[Role, ...] = NINE_SEATS.deck
    seed: int = 0
    views: tuple[int, ...] = ()


RARE_RULES: Mapping[str, Scripted] = {
    "double_explosion": Scripted(
        "双爆吞警徽：首日警上自爆，竞选推迟；次日投票时再自爆，警徽流失；第三天天亮直接公布死讯，不再竞选。",
        """
        night_actions: 1=7 4=1 7,8,9=5
        witch_action:  2=pass
        sign_up:       1,3,7=run
        campaign:      1=「我是预言家，7号是狼人。」  3=「没有话说。」  7=explode
        last_words:    5=「我是村民。」
        night_actions: 1=8 4=2 8,9=4
        witch_action:  2=pass
        sheriff_vote:  2,6=1 8=explode
        night_actions: 1=2 9=6
        witch_action:  2=pass
        """,
        preset=replace(NINE_SEATS, round_limit=3),
        seed=1,
        views=(8, 6),
    ),
    "badge_swallowed_by_a_candidate": Scripted(
        "警上的狼人也能双爆：首日7号在发言结束后自爆；次日候选人8号没有投票权，投票前单独问他，他自爆，警徽流失。",
        """
        sign_up:       1,3,7,8=run
        campaign:      1=「我是预言家，8号是狼人。」 3,7=「选我。」 8=「我才是预言家，1号悍跳。」
        withdrawal:    3=withdraw 7=explode
        night_actions: 8,9=5
        witch_action:  2=save
        sheriff_vote:  2,4,5,6=1 8=explode
        """,
        preset=TWO_DAYS,
        views=(6,),
    ),
    "withdrawals_at_once": Scripted(
        "退水：全部发言后同时问所有候选人，3号和7号退水；只剩1号，当选前问没有上警的狼人8号是否自爆，他不自爆。",
        """
        sign_up:        1,3,7=run
        campaign:       1=「我是预言家。」 3=「听预言家的。」 7=「我来带队。」
        withdrawal:     3,7=withdraw
        unopposed:      8=pass
        speaking_order: 1=sheriff_left
        exile_vote:     1,2=7 8,9=3
        last_words:     7=「再见。」
        """,
        views=(6,),
    ),
    "exile_tied_twice": Scripted(
        "放逐投票两次平票：PK台上的人不投票，第二次仍平，平安日。",
        """
        exile_vote: 1,2=7 7,8=3 4,5,6,9=pass
        pk_speech:  3=「我是好人。」 7=「3号说谎。」
        pk_vote:    1=7 8=3
        """,
    ),
    "election_tied_twice": Scripted(
        "警长竞选两次平票：退水者6号首轮不投票，PK轮可以投；第二次仍平，警徽流失。",
        """
        sign_up:           1,6,7=run
        campaign:          1,7=「我是预言家。」 6=withdraw「退水。」
        sheriff_vote:      2=1 8=7
        sheriff_pk_speech: 1=「7号悍跳。」 7=「1号悍跳。」
        sheriff_pk_vote:   6=1 8=7
        exile_vote:        1,2=pass
        """,
    ),
    "guarded_and_saved": Scripted(
        "同守同救：5号被袭击，守卫守了他，女巫也救了他，仍然死亡。",
        """
        night_actions: 1=9 4=5 7,8,9=5
        witch_action:  2=save
        last_words:    5=「谁守了我？」
        exile_vote:    7,8,9=6
        """,
    ),
    "chain_of_shots": Scripted(
        "连环枪：首夜猎人3号死亡，遗言后带走狼王9号，狼王带走警长6号，6号无遗言，移交警徽。",
        """
        night_actions:  7,8,9=3
        witch_action:   2=pass
        sign_up:        6=run
        last_words:     3=「我是猎人，带走9号。」
        shot:           3=9 9=6
        badge:          6=1
        speaking_order: 1=dead_right
        discussion:     1=7「我是预言家，归票7号。」
        exile_vote:     1,2,4=7
        last_words:     7=「没有话说。」
        """,
    ),
    "badge_torn": Scripted(
        "撕毁警徽：狼人7号当上警长后被放逐，遗言后撕毁警徽；次日没有警长，发言顺序随机，每人一票。",
        """
        sign_up:        7=run
        speaking_order: 7=sheriff_left
        discussion:     7=1「归票1号。」
        exile_vote:     1,2,3,4,5,6=7
        last_words:     7=「再见。」
        badge:          7=pass
        night_actions:  8,9=pass
        exile_vote:     1,2=8 8=1
        last_words:     8=「没有话说。」
        """,
        preset=TWO_DAYS,
    ),
    "first_night_victim_elected": Scripted(
        "首夜死者当选警长：5号被袭击，死讯未公布时上警、发言、当选；公布后先遗言，再移交警徽；只死一人，可选死左死右。",
        """
        night_actions:  1=8 4=4 7,8,9=5
        witch_action:   2=pass
        sign_up:        5,8=run
        campaign:       5=「我是好人。」 8=「选我。」
        sheriff_vote:   1,2,3=5 7=8
        last_words:     5=「警徽给1号。」
        badge:          5=1
        speaking_order: 1=dead_left
        discussion:     1=8「我查验8号是狼人。」
        exile_vote:     1,2=8 7,8=2
        last_words:     8=「没有话说。」
        """,
        views=(7, 6),
    ),
    "explosion_while_closing": Scripted(
        "警长在归票时自爆：7号归票发言时自爆，发言作废，仍移交警徽，当天不投票。",
        """
        sign_up:        7=run
        speaking_order: 7=sheriff_right
        discussion:     1=「我是预言家，7号是狼人。」 7=explode「我爆了。」
        badge:          7=9
        """,
    ),
    "explosion_in_first_ballot": Scripted(
        "警长投票时自爆：已投的票不公布，竞选推迟；昨夜死者此时才公布，有遗言。",
        """
        night_actions: 7,8,9=6
        witch_action:  2=pass
        sign_up:       1,3=run
        sheriff_vote:  2,4,5=1 6=3 7=explode
        last_words:    6=「我是村民。」
        """,
    ),
    "put_off_election": Scripted(
        "推迟的竞选：次日天亮先直接投票，不上警也不发言；当夜被袭击的1号死讯未公布，仍当选，公布后移交警徽，无遗言。",
        """
        sign_up:        1,3,7=run
        campaign:       7=explode
        night_actions:  4=3 8,9=1
        witch_action:   2=pass
        sheriff_vote:   2,4=1 8=3
        badge:          1=2
        speaking_order: 2=dead_left
        exile_vote:     2,3=8 8,9=2
        last_words:     8=「没有话说。」
        """,
        preset=TWO_DAYS,
    ),
    "poisoned_hunter": Scripted(
        "毒死的猎人不能开枪：3号猎人被毒，得知不可开枪，有首夜遗言而无枪。",
        """
        night_actions: 7,8,9=5
        witch_action:  2=3
        last_words:    3=「我是猎人。」 5=「我是村民。」
        exile_vote:    7,8,9=6
        """,
    ),
    "wolf_king_shoots": Scripted(
        "狼王开枪：狼王9号被放逐，遗言后带走预言家1号，1号无遗言。",
        """
        night_actions: 1=9
        discussion:    1=「9号是狼人。」
        exile_vote:    1,2,3,4=9
        last_words:    9=「带走1号。」
        shot:          9=1
        """,
    ),
    "one_and_a_half_votes": Scripted(
        "警长1.5票：两人对两人，警长一方2.5票，7号被放逐。",
        """
        sign_up:        1=run
        speaking_order: 1=sheriff_left
        discussion:     1=7「归票7号。」
        exile_vote:     1,2=7 8,9=3
        last_words:     7=「再见。」
        """,
    ),
    "one_and_a_half_votes_in_pk": Scripted(
        "警长的票在PK中也算1.5票：7号1.5票，3号1票。",
        """
        sign_up:        1=run
        speaking_order: 1=sheriff_left
        exile_vote:     2,4=7 8,9=3
        pk_vote:        1=7 8=3
        last_words:     7=「没有话说。」
        """,
    ),
    "both_conditions": Scripted(
        "狼刀在先：唯一的神职猎人1号被放逐，开枪带走唯一的狼人5号，双方条件同时成立，狼人阵营胜。",
        """
        exile_vote: 2,3,4=1
        last_words: 1=「带走5号。」
        shot:       1=5
        """,
        preset=FIVE_SEATS,
        roles=FIVE_SEATS.deck,
    ),
    "round_limit": Scripted(
        "回合上限：两天无人出局，平局。",
        """
        night_actions: 1=pass
        exile_vote:    1=2 2=1
        pk_vote:       3,4=pass
        night_actions: 1=pass
        exile_vote:    1=pass
        """,
        preset=replace(TINY, round_limit=2),
        roles=deck(wolf=1, seer=1, villager=3),
    ),
}
